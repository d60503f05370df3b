"""Tools of an application as VineLM knows them: what their owner declares, and what one call of a tool was."""
