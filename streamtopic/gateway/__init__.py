"""The gateway: requests for deletions from privacy tools over HTTP, as the OpenDSR specification 2.0 describes.

opendsr_messages    requests and answers of the specification, as values
response_signing    the certificate that signs answers and callbacks
gateway_routes      addresses, the bearer token, and errors as answers
callback_addresses  which addresses may be called back, and a connection to nothing else
callback_sender     sends callbacks from their outbox, at least once

Starlette and Uvicorn come with the extra `dashboard`. The gateway needs Redis alone: the scheduler sends the deletes.
"""
