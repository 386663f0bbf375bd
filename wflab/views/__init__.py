"""Looking at a World: lists, DataFrames and pictures that need no running engine and no Jupyter."""
