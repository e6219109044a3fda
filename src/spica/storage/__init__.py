"""Files that outlive a process or must not: the cache of answers, short-lived folders."""
