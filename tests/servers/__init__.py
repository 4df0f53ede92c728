"""Groups of real servers on this machine, for tests and the campaign of faults.

redis_cluster   a Redis Cluster, and a primary that sentinels watch
kafka_broker    a Kafka broker, and three that stand in for one another
node            one server of such a group
ports           ports for servers, which no other program is given by chance
"""
