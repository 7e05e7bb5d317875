#!/bin/sh
# what we run before a release
bin/runjava com.rabbitmq.perf.PerfTest -h amqp://me:secret@rabbit1 -x 1 -y 2 -u throughput -a \
  --id "test 1" -s 4000
echo done
CONFIRM=100 java -jar perf-test.jar -qq -u q1,q2 -y 2 -q 500 -A 10 -L 1000 -f mandatory -z 60 > out.txt
docker run -it --rm --network perf-test -e VARIABLE_RATE=100:60,1000:10 pivotalrabbitmq/perf-test:latest \
  -H amqp://a,amqp://b -x 0 -y 3 -D 1000 -ct -1 -nty -hst 5 -mjx -o out.csv -E -cri 30-60
perf-test -e amq.topic -t topic -x 2 -X 3 -y 4 -Y 2 -qp 'q-%02d' -qpf 1 -qpt 9 -C 100 -P 0.5 -po -pi 20 -K -rkcs 5
perf-test
