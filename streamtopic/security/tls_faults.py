"""Failures of TLS, in words that name the remedy. Redis and Kafka are reached by different packages, with one TLS."""

import ssl

__all__ = ["tls_fault"]

# Numbers of OpenSSL (X509_V_ERR_...), as Python gives them in `verify_code`.
_EXPIRED = 10
_NOT_YET = 9
_NAMES = (62, 64)
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
        return _verification(error)
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        return "it does not speak TLS: use the port with TLS, or settings without"
    if "NO_CERTIFICATE_OR_CRL_FOUND" in reason or "PEM" in reason:
        return "the file of the authority or certificate is not in PEM form: name another file"
    if any(alert in reason for alert in _ALERTS):
        return f"it does not take this client's certificate ({reason}): give one that its authority signed"
    return None


def _verification(error: ssl.SSLCertVerificationError) -> str:
    told = error.verify_message
    match error.verify_code:
        case code if code == _EXPIRED:
            return f"its certificate has expired ({told}): renew it (docs/deploy.md), or set this clock"
        case code if code == _NOT_YET:
            return f"its certificate is not valid yet ({told}): set the clocks of both machines"
        case code if code in _NAMES:
            return f"its certificate is for another host ({told}): use a name that the certificate has, or renew it"
        case _:
            return (
                f"its certificate is not signed by an authority known here ({told}): name the file of its authority "
                "by kafka_ssl_cafile or by ?ssl_ca_certs=FILE in redis_url"
            )
