"""What the user types: one module per verb, which parses arguments, calls one function and prints its result."""
