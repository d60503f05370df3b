"""What a policy for the whole fleet says, and the policies that are built in. Pure: no I/O, no clock."""
