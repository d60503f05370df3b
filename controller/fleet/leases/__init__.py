"""What the processes of a fleet may use of limits that they share: calls and tokens a minute, dollars a day."""
