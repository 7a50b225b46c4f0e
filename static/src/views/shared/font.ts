/** Of every label on a canvas. */
export const FONT = '11.5px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'
