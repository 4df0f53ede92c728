"""What can be known of a service. Nothing here changes one.

status_facts       its state, as `status` shows it
capacity_facts     how many deletions its model bears
slices             topics over time and by class
examination        faults that can be seen before they do harm, each with its remedy
"""
