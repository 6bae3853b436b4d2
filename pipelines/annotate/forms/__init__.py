"""Define what annotators are asked: by a protocol, in a round, with a form."""
