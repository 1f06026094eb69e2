"""What passes between stages: one pydantic model a file. No behaviour beyond reading and writing."""
