"""Why a pod was served as it was, in words with a remedy: a pure function of what the cluster says of the pod.

`gathered` reads what was gathered, `decide` finds the cause, `remedies` says what to do about it.
"""
