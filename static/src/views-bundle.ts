// The second bundle: the views that are not shown at first. It lies compressed in the report (blob "views") and runs when one
// of them is asked for, so that the first picture waits for none of it.

import { deliver } from './views/load'
import { REGISTRY } from './views/registry'

deliver(REGISTRY)
