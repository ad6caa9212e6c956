# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .library import Entry as Entry, Library as Library, Record as Record
from .store import Row as Row, Store as Store, StoreError as StoreError, Task as Task
from .sweep import Checked as Checked, check_store as check_store, read_spec as read_spec
