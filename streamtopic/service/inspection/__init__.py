"""What can be known of a service. Nothing here changes one.

status_facts       its state, as `status` shows it
slices             topics over time and by class
examination        faults that can be seen before they do harm, each with its remedy
"""
