# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .checks import Checked as Checked, check_store as check_store
from .library import Entry as Entry, Library as Library, Record as Record
from .specs import read_spec as read_spec
from .store import Store as Store, StoreError as StoreError
from .tasks import Row as Row, Task as Task
