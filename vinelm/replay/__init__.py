"""From recorded LLM calls to where the money goes, and to a proof that a cheaper plan answers as well."""
