/** The plots of `sparse-attention`. */
import type { PlotTitle } from '../harness/plots.js';

const keys = 'keys';
const prompt = 'prompt length in tokens';

export const promptTimePlot: PlotTitle = {
  name: 'subquadratic-prompt',
  title: 'Attention of a prompt, subquadratic against dense',
  x: prompt,
  y: 'ms',
  isLogarithmic: true,
};

export const promptRatePlot: PlotTitle = {
  name: 'chunked-prefill',
  title: 'Attention of a prompt: chunks with a memory against dense',
  x: prompt,
  y: 'tokens per second',
};

export const sparqPlot: PlotTitle = {
  name: 'sparq-speed-up',
  title: 'SparQ: speed-up over dense, measured and the limit by elements moved',
  x: keys,
  y: 'speed-up over dense',
};

export const crossoverPlot: PlotTitle = {
  name: 'crossover',
  title: 'Decode under a policy: faster than dense below 1',
  x: keys,
  y: 'time relative to dense',
  isLogarithmic: true,
};
