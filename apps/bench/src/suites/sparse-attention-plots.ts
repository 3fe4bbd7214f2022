/** The plots of `sparse-attention`. */
import type { PlotTitle } from '../harness/plots.js';

const keys = 'keys';
const prompt = 'tokens of the prompt';

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
  title: 'SparQ: speed-up over dense, reached and possible by elements moved',
  x: keys,
  y: 'times as fast as dense',
};

export const crossoverPlot: PlotTitle = {
  name: 'crossover',
  title: 'A token under a policy: it pays where the line is below 1',
  x: keys,
  y: 'time by that of dense',
  isLogarithmic: true,
};
