// What is done while the worker reads the report, since the first frame would wait for it: colours, styles, fonts.

import { isDark } from '../ui/theme'
import { FONT } from '../views/shared/font'
import { warmPicture } from '../views/timeline/picture'

export function warmUp(root: HTMLElement): void {
  warmPicture(isDark('system'))
  getComputedStyle(root).getPropertyValue('--ink')
  const ctx = document.createElement('canvas').getContext('2d')
  if (!ctx) return
  ctx.font = FONT
  ctx.measureText('0')
}
