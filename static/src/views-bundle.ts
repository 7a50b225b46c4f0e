// The second bundle: the views that are not shown at first. It lies compressed in the report (blob "views") and runs once the
// first picture is drawn, which therefore waits for none of it, or when the report opens on one of them.

import { deliver } from './views/load'
import { REGISTRY } from './views/registry'

deliver(REGISTRY)
