"""From what is staged to the topics that others read: releases, receipts, statements, what deletions leave."""
