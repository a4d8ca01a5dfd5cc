"""The functions that emitted modules are made of: real code, which tests call as it stands.

The writer takes functions from here, gives their constants the values of the Plan, folds away the branches of flags
(the constants that are True or False), and leaves out what is then not used. A constant that the source does not
determine becomes a keyword-only parameter, in lower case, of each function that uses it. Constants therefore stand in
functions under their own names, and flags only as the test of an `if` statement.
"""
