"""What is wrong with an instance or a service, found before it hurts: each finding says what to change.

examine   all of it
Finding   one line
"""

from streamtopic.service.doctor.examination import examine
from streamtopic.service.doctor.finding import Finding, Level

__all__ = ["Finding", "Level", "examine"]
