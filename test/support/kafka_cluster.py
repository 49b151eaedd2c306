"""A Kafka cluster that librdkafka plays. Reads commands from its input, one a line, and ends with it."""
import ctypes, ctypes.util, sys

kafka = ctypes.CDLL('librdkafka.so.1')
for name in ('rd_kafka_conf_new', 'rd_kafka_new', 'rd_kafka_mock_cluster_new'):
    getattr(kafka, name).restype = ctypes.c_void_p
kafka.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
text = ctypes.create_string_buffer(512)
client = kafka.rd_kafka_new(0, ctypes.c_void_p(kafka.rd_kafka_conf_new()), text, 512)
cluster = ctypes.c_void_p(kafka.rd_kafka_mock_cluster_new(ctypes.c_void_p(client), int(sys.argv[1])))
print(kafka.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
for line in sys.stdin:
    command, *rest = line.split()
    if command == 'topic':
        kafka.rd_kafka_mock_topic_create(cluster, rest[0].encode(), int(rest[1]), 1)
    elif command == 'fault':
        kafka.rd_kafka_mock_topic_set_error(cluster, rest[0].encode(), int(rest[1]))
    elif command == 'leader':
        kafka.rd_kafka_mock_partition_set_leader(cluster, rest[0].encode(), int(rest[1]), int(rest[2]))
    elif command == 'down':
        kafka.rd_kafka_mock_broker_set_down(cluster, int(rest[0]))
    elif command == 'up':
        kafka.rd_kafka_mock_broker_set_up(cluster, int(rest[0]))
    elif command == 'errors':
        count = int(rest[2])
        kafka.rd_kafka_mock_push_request_errors_array(cluster, int(rest[0]), count, (ctypes.c_int * count)(*[int(rest[1])] * count))
    print('done', flush=True)
