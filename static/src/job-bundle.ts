// The third bundle: the view of a whole job. It lies compressed in job reports alone (blob "jobview").

import { JobView } from './job/job-view'
import { deliverJob } from './job/interface'

deliverJob((parts) => new JobView(parts))
