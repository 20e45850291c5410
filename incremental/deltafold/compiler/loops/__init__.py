"""Compile loops: find where a step reads its loop, recognise k-means, and make the stage that maintains a loop."""
