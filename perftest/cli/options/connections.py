"""Options about connections."""

from __future__ import annotations

from perftest.cli.options.option import flag, section, value

OPTIONS = section(
    "Connections",
    value(
        "-cal --connection-allocation",
        "allocation",
        "random|round-robin",
        "Which of several URIs a connection is opened to.",
        default="random",
        local="round-robin",
    ),
    value("-b --heartbeat", "count", "SECONDS", "Heartbeat to ask for; 0: the broker's.", default="0"),
    value(
        "-M --framemax",
        "size",
        "SIZE",
        "Largest frame to ask for; 0: the broker's.",
        default="0",
        places=("connecting.frame_max",),
    ),
    flag("-dcr --disable-connection-recovery", "A lost connection ends the run."),
    value(
        "-cri --connection-recovery-interval",
        "range_s",
        "SECONDS",
        "Wait before a lost connection is made again; 30-60: a random time.",
        default="5",
        shown="5; bundled cluster: short, growing",
        places=("connecting.recovery_s",),
    ),
    value(
        "-sst --servers-startup-timeout",
        "signed_s",
        "SECONDS",
        "Wait so long for the brokers before the run; -1: do not.",
        default="-1",
    ),
    value(
        "-sul --servers-up-limit",
        "signed",
        "N",
        "So many of the URIs must answer.",
        shown="all",
        default="-1",
        places=("connecting.servers_up",),
    ),
    value("-tsbs --tcp-send-buffer-size", "signed_octets", "SIZE", "Send buffer of sockets.", shown="the system's"),
    value("-trbs --tcp-receive-buffer-size", "signed_octets", "SIZE", "Receive buffer.", shown="the system's"),
    value("-tnd --tcp-no-delay", "boolean", "BOOL", "Send small packets at once.", default="true"),
    flag("-udsc --use-default-ssl-context", "Check certificates of amqps:// by the system's authorities."),
    value(
        "--tls-ca",
        "path",
        "FILE",
        "Check them by these authorities (PEM).",
        perftest=False,
        places=("connecting.tls.ca_file", "connecting.tls"),
    ),
    value(
        "--tls-cert",
        "path",
        "FILE",
        "Certificate to show to the broker (PEM).",
        perftest=False,
        places=("connecting.tls.cert_file",),
    ),
    value("--tls-key", "path", "FILE", "Its key (PEM).", perftest=False, places=("connecting.tls.key_file",)),
    value("-sni --server-name-indication", "names", "NAMES", "Server names to ask for, with commas."),
    flag("-se --sasl-external", "SASL EXTERNAL: the certificate says who it is.", places=("connecting.external",)),
)
