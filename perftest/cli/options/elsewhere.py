"""PerfTest's options that mean nothing here, accepted with one warning, and those that are refused."""

from __future__ import annotations

from perftest.cli.options.option import Effect, flag, section, value

_JVM = "there is no JVM"
_METRICS = "Datadog is not sent to; -mpr serves metrics for Prometheus"
_INSTANCES = "runs on several hosts are not synchronised by instances"
_STREAM = "streams are not measured; use -qq for a quorum queue, or PerfTest and stream-perf-test for streams"
_OAUTH = "no tokens are fetched; write one as the password of the URI: amqp://:TOKEN@host"

_WITHOUT = (
    value("-hst --heartbeat-sender-threads", "text", "N", "", reason=_JVM),
    value("-pst --producer-scheduler-threads", "text", "N", "", reason=_JVM),
    value("-ctp --consumers-thread-pools", "text", "N", "", reason=_JVM),
    value("-niot --nio-threads", "text", "N", "", reason=_JVM),
    value("-niotp --nio-thread-pool", "text", "N", "", reason=_JVM),
    flag("-nty --netty", "", reason=_JVM),
    value("-ntyt --netty-threads", "text", "N", "", reason=_JVM),
    flag("-ntyep --netty-epoll", "", reason=_JVM),
    flag("-ntykq --netty-kqueue", "", reason=_JVM),
    flag("-mc --metrics-client", "", reason=_JVM),
    flag("-mcl --metrics-class-loader", "", reason=_JVM),
    flag("-mjm --metrics-jvm-memory", "", reason=_JVM),
    flag("-mjgc --metrics-jvm-gc", "", reason=_JVM),
    flag("-mjp --metrics-processor", "", reason=_JVM),
    flag("-mjt --metrics-jvm-thread", "", reason=_JVM),
    flag("-mjx --metrics-jmx", "", reason=_JVM),
    flag("-mda --metrics-datadog", "", reason=_METRICS),
    value("-mdk --metrics-datadog-api-key", "text", "KEY", "", reason=_METRICS),
    value("-mdak --metrics-datadog-application-key", "text", "KEY", "", reason=_METRICS),
    value("-mds --metrics-datadog-step-size", "text", "SECONDS", "", reason=_METRICS),
    value("-mdh --metrics-datadog-host-tag", "text", "TAG", "", reason=_METRICS),
    flag("-mdd --metrics-datadog-descriptions", "", reason=_METRICS),
    value("-mdu --metrics-datadog-uri", "text", "URI", "", reason=_METRICS),
    value("-ei --expected-instances", "text", "N", "", reason=_INSTANCES),
    value("-isn --instance-sync-namespace", "text", "NAME", "", reason=_INSTANCES),
    value("-ist --instance-sync-timeout", "text", "SECONDS", "", reason=_INSTANCES),
    flag("--verbose", "", reason="no line is printed for each message"),
    flag("--verbose-full", "", reason="no line is printed for each message"),
)
_REFUSED = (
    flag("-sq --stream-queue", "", reason=_STREAM),
    value("-smssb --stream-max-segment-size-bytes", "text", "SIZE", "", reason=_STREAM),
    value("-ma --max-age", "text", "DURATION", "", reason=_STREAM),
    value("-sco --stream-consumer-offset", "text", "OFFSET", "", reason=_STREAM),
    value("-o2uri --oauth2-token-endpoint", "text", "URI", "", reason=_OAUTH),
    value("-o2id --oauth2-client-id", "text", "ID", "", reason=_OAUTH),
    value("-o2sec --oauth2-client-secret", "text", "SECRET", "", reason=_OAUTH),
    value("-o2gr --oauth2-grant-type", "text", "TYPE", "", reason=_OAUTH),
    value("-o2p --oauth2-parameters", "text", "K=V,...", "", reason=_OAUTH),
)

OPTIONS = (
    *section("Other", *_WITHOUT, effect=Effect.WITHOUT),
    *section("Other", *_REFUSED, effect=Effect.REFUSED),
)
