"""Which reads an application will ask for next, and with which arguments: mined from recorded sessions, purely."""
