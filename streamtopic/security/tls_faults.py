"""Failures of TLS, in words that name the remedy. Redis and Kafka are reached by different packages, with one TLS."""

import ssl

__all__ = ["tls_fault"]

_OTHER_HOST = "its certificate is for another host ({}): use a name that the certificate has, or renew it"
# By numbers of OpenSSL (X509_V_ERR_...), as Python gives them in `verify_code`.
_REFUSED = {
    9: "its certificate is not valid yet ({}): set the clocks of both machines",
    10: "its certificate has expired ({}): renew it (docs/deploy.md), or set this clock",
    62: _OTHER_HOST,
    64: _OTHER_HOST,
}
_UNKNOWN = (
    "its certificate is not signed by an authority known here ({}): name the file of its authority by kafka_ssl_cafile "
    "or by ?ssl_ca_certs=FILE in redis_url"
)
_ALERTS = ("UNKNOWN_CA", "CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "HANDSHAKE_FAILURE", "CERTIFICATE_EXPIRED")


def tls_fault(error: BaseException | None) -> str | None:
    """Return the fault and its remedy, "fault: remedy"; None unless a failure of TLS caused the error.

    error: with those that caused it.

    A connection that broke off while it was made is not named: a server that restarts does that too.
    """
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, ssl.SSLError) and (told := _explained(one)):
            return told
        # Some packages give the error that they met as an argument of their own.
        waiting += [one.__cause__, one.__context__, *one.args]
    return None


def _explained(error: ssl.SSLError) -> str | None:
    reason = str(error.reason or "")
    if isinstance(error, ssl.SSLCertVerificationError):
        return _REFUSED.get(error.verify_code, _UNKNOWN).format(error.verify_message)
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        return "it does not speak TLS: use the port with TLS, or settings without"
    if "NO_CERTIFICATE_OR_CRL_FOUND" in reason or "PEM" in reason:
        return "the file of the authority or certificate is not in PEM form: name another file"
    if any(alert in reason for alert in _ALERTS):
        return f"it does not take this client's certificate ({reason}): give one that its authority signed"
    return None
