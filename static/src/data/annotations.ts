// What the manifest holds of a device's steps and annotated spans (written by snapreport/report/span_columns.py).

export const RAGGED_START = 1
export const RAGGED_END = 2
