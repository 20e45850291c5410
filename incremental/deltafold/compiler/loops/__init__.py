"""Compile loops: where a step reads its loop, what it may be simplified to, and the stage that maintains it."""
