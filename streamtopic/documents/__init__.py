"""Documents as producers, people and files give them: records, their limits, and who must stay forgotten.

events          the codec of records: adds, deletes and heartbeats, and what each may cost
deletion_record requests to forget documents or people, as records of a topic
subjects        the people that documents are about
suppression     ids and subjects that were forgotten, and that are refused when they are sent again
corpus          documents from JSON lines, and from the docstrings of installed packages
"""
