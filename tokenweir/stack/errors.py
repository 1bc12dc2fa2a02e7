"""What goes wrong when the stack is started or stopped."""


class StackError(Exception):
    """The text says what is wrong and what to do."""
