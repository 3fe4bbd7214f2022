/** Lines and bars as SVG, drawn by ECharts without a DOM (docs/decisions/0009). */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** The description of a plot; points are added as they are measured. */
export interface PlotTitle {
  /** File name without extension. */
  readonly name: string;
  readonly title: string;
  readonly x: string;
  readonly y: string;
  /** Default: linear. */
  readonly isLogarithmic?: boolean;
}

export interface PlotLine {
  readonly name: string;
  readonly points: readonly (readonly [x: number, y: number])[];
  /** Default: solid, in the next color. */
  readonly style?: { readonly color: string; readonly isDashed: boolean };
}

/** A plot with its points. */
export interface PlotData extends PlotTitle {
  readonly lines: readonly PlotLine[];
}

/** A point of a line of a plot. */
export type AddPoint = (plot: PlotTitle, line: string, x: number, y: number) => void;

export interface PlotBook {
  readonly add: AddPoint;
  /** What was added so far. */
  plots(): readonly PlotData[];
  /** Writes the plots that have a line of at least two points. @returns their paths */
  write(folder: string): Promise<readonly string[]>;
}

type Lines = Map<string, [x: number, y: number][]>;

export function createPlotBook(): PlotBook {
  const book = new Map<string, { readonly plot: PlotTitle; readonly lines: Lines }>();
  const plots = (): PlotData[] =>
    [...book.values()].map(({ plot, lines }) => ({
      ...plot,
      lines: [...lines].map(([name, points]) => ({ name, points })),
    }));
  return {
    add(plot, line, x, y) {
      const { lines } = book.get(plot.name) ?? { lines: new Map() as Lines };
      book.set(plot.name, { plot, lines });
      lines.set(line, [...(lines.get(line) ?? []), [x, y]]);
    },
    plots,
    async write(folder) {
      await mkdir(folder, { recursive: true });
      const paths: string[] = [];
      for (const plot of plots()) {
        if (!plot.lines.some(({ points }) => points.length > 1)) continue;
        const path = join(folder, `${plot.name}.svg`);
        await writeFile(path, await drawLines(plot));
        paths.push(path);
      }
      return paths;
    },
  };
}

const titleStyle = { left: 12, top: 8, textStyle: { fontSize: 14, fontWeight: 'normal' } };
const splitLine = { lineStyle: { color: '#eeeeee' } };

/** Lines against a length. */
export function drawLines({ title, x, y, isLogarithmic = false, lines }: PlotData): Promise<string> {
  const axis = { nameLocation: 'middle', nameGap: 40, splitLine };
  return draw(900, 520, {
    title: { text: title, ...titleStyle },
    grid: { left: 72, right: 280, top: 48, bottom: 56 },
    legend: { orient: 'vertical', right: 8, top: 48, itemWidth: 18, textStyle: { fontSize: 10 } },
    xAxis: { ...axis, type: 'log', logBase: 2, name: x, min: 'dataMin', max: 'dataMax' },
    yAxis: { ...axis, type: isLogarithmic ? 'log' : 'value', name: y },
    series: lines.map(({ name, points, style }) => ({
      ...{ name, type: 'line', symbolSize: 6, data: points },
      ...(style === undefined
        ? {}
        : { itemStyle: { color: style.color }, lineStyle: { type: style.isDashed ? 'dashed' : 'solid' } }),
    })),
  });
}

/** Horizontal bars, the first at the top. */
export function drawBars(title: string, unit: string, bars: readonly (readonly [string, number])[]): Promise<string> {
  return draw(1000, 90 + 18 * bars.length, {
    title: { text: title, ...titleStyle },
    grid: { left: 470, right: 70, top: 40, bottom: 44 },
    xAxis: { type: 'value', name: unit, nameLocation: 'middle', nameGap: 26, splitLine },
    yAxis: {
      ...{ type: 'category', inverse: true, data: bars.map(([name]) => name), axisTick: { show: false } },
      axisLabel: { interval: 0, fontSize: 10, width: 450, overflow: 'truncate' },
    },
    series: [
      {
        ...{ type: 'bar', barWidth: 11, itemStyle: { color: '#1f77b4' } },
        data: bars.map(([, value]) => Number(value.toPrecision(4))),
        label: { show: true, position: 'right', fontSize: 10 },
      },
    ],
  });
}

async function draw(width: number, height: number, chart: object): Promise<string> {
  // loaded on demand
  const [charts, { GridComponent, LegendComponent, TitleComponent }, { init, use }, { SVGRenderer }] =
    await Promise.all([
      import('echarts/charts'),
      import('echarts/components'),
      import('echarts/core'),
      import('echarts/renderers'),
    ]);
  use([charts.LineChart, charts.BarChart, GridComponent, LegendComponent, TitleComponent, SVGRenderer]);
  const view = init(null, null, { renderer: 'svg', ssr: true, width, height });
  try {
    view.setOption({ animation: false, backgroundColor: '#ffffff', ...chart });
    return view.renderToSVGString();
  } finally {
    view.dispose();
  }
}
