"""The life of a model outside its flow: backup, rebuild, upgrade, keys, and its end."""
