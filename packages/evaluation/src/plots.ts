export { drawCachedMaps, type DrawCachedOptions } from './plots/cached-drawing.js';
export type { PlotOptions } from './plots/chart.js';
export { drawQuality, drawTime } from './plots/evaluation-plots.js';
export { drawTuning } from './plots/tune-page.js';
export { drawVisits, type DrawVisitsOptions } from './plots/visit-drawing.js';
