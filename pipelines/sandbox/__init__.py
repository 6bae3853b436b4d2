"""An offline Reddit with its truth beside it, for the demo and the tests."""
