"""The passes of the compiler (compile.py has their order): each turns a draft of the program into another."""
