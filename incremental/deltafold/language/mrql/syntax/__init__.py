"""The text of MRQL and its tree; parse.py is the only module that imports lark."""
