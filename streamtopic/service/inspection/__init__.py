"""What can be known of a service. Nothing here changes one.

status_facts       its state, as `status` shows it
examination        faults that can be seen before they do harm, each with its remedy
"""
