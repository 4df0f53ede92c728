"""Groups of real servers on this machine, for tests and the campaign of faults.

redis_cluster   a Redis Cluster, and a primary that sentinels watch
kafka_cluster   Kafka brokers, with TLS, passwords and rules if these are wanted
node            one server of such a group
ports           ports for servers, which no other program is given by chance
"""
