"""From records of the documents topic to counts: read, decode, resolve, apply.

worker             takes partitions, counts their records, and gives partitions up
partition_ingest   the loop of one partition: each record is counted exactly once
decode             records to documents and deletes, a batch at a time
suppressions       refuses the adds of those who are suppressed
resolve            their net effect on a partition, without any I/O
missed_deletes     writes tombstones for documents whose deletes left the log unread
rejections         records that were refused
"""
