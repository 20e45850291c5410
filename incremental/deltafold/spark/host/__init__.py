"""Share one warm Spark between the processes of a machine: a host keeps it, guests attach to it.

What a host writes about itself and who may read it: address.py. Which host serves which settings: wanted.py. Attaching:
guest.py. How many guests there are: guests.py. Keeping the Spark until it is idle, told to end, or dead: keeper.py.
"""
