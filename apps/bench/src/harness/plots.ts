/** Lines over a length that suites have measured, drawn as SVG by ECharts without a DOM (docs/decisions/0009). */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** What a plot shows; points are added as they are measured. */
export interface PlotTitle {
  /** Of the file, without its ending. */
  readonly name: string;
  readonly title: string;
  readonly x: string;
  readonly y: string;
  /** Default: linear. */
  readonly isLogarithmic?: boolean;
}

/** A point of a line of a plot. */
export type AddPoint = (plot: PlotTitle, line: string, x: number, y: number) => void;

export interface PlotBook {
  readonly add: AddPoint;
  /** Writes the plots that have a line of two points. @returns their paths */
  write(folder: string): Promise<readonly string[]>;
}

type Lines = Map<string, [x: number, y: number][]>;

export function createPlotBook(): PlotBook {
  const plots = new Map<string, { readonly plot: PlotTitle; readonly lines: Lines }>();
  return {
    add(plot, line, x, y) {
      const { lines } = plots.get(plot.name) ?? { lines: new Map() as Lines };
      plots.set(plot.name, { plot, lines });
      lines.set(line, [...(lines.get(line) ?? []), [x, y]]);
    },
    async write(folder) {
      await mkdir(folder, { recursive: true });
      const paths: string[] = [];
      for (const [name, { plot, lines }] of plots) {
        if (![...lines.values()].some((points) => points.length > 1)) continue;
        const path = join(folder, `${name}.svg`);
        await writeFile(path, await draw(plot, lines));
        paths.push(path);
      }
      return paths;
    },
  };
}

async function draw({ title, x, y, isLogarithmic = false }: PlotTitle, lines: Lines): Promise<string> {
  // loaded only when there is something to draw
  const [{ LineChart }, { GridComponent, LegendComponent, TitleComponent }, { init, use }, { SVGRenderer }] =
    await Promise.all([
      import('echarts/charts'),
      import('echarts/components'),
      import('echarts/core'),
      import('echarts/renderers'),
    ]);
  use([LineChart, GridComponent, LegendComponent, TitleComponent, SVGRenderer]);
  const view = init(null, null, { renderer: 'svg', ssr: true, width: 900, height: 520 });
  const axis = { nameLocation: 'middle', nameGap: 40, splitLine: { lineStyle: { color: '#eeeeee' } } };
  try {
    view.setOption({
      animation: false,
      backgroundColor: '#ffffff',
      title: { text: title, left: 12, top: 8, textStyle: { fontSize: 14, fontWeight: 'normal' } },
      grid: { left: 72, right: 280, top: 48, bottom: 56 },
      legend: { orient: 'vertical', right: 8, top: 48, itemWidth: 18, textStyle: { fontSize: 10 } },
      xAxis: { ...axis, type: 'log', logBase: 2, name: x, min: 'dataMin', max: 'dataMax' },
      yAxis: { ...axis, type: isLogarithmic ? 'log' : 'value', name: y },
      series: [...lines].map(([name, data]) => ({ name, type: 'line', symbolSize: 6, data })),
    });
    return view.renderToSVGString();
  } finally {
    view.dispose();
  }
}
