export { drawCachedMaps, type DrawCachedOptions } from './plots/cached-drawing.js';
export { drawQuality, drawTime, type PlotOptions } from './plots/evaluation-plots.js';
export { drawVisits, type DrawVisitsOptions } from './plots/visit-drawing.js';
