/** The span of time that charts show, set by buttons or typed: dragging over a chart is not needed. */
import { moved, type Span, zoomed } from '../../parts/charts/span.ts';
import { Button, Field, Form, type Values } from '../../parts/forms/form.tsx';
import { texts } from '../../texts.ts';

const words = texts.charts;

/** What a field of date and time takes: local, with seconds. */
const typedTime = (seconds: number) => new Date(seconds * 1000).toLocaleString('sv').replace(' ', 'T');

/** `span` is empty until it is known; `of` names the range that was chosen. */
export function Range({
  span,
  of,
  onSpan,
  onWhole,
}: {
  span: Span;
  of: string;
  onSpan: (span: Span) => void;
  /** Undefined while the whole range is shown. */
  onWhole: (() => void) | undefined;
}) {
  const isKnown = span.to > 0;
  const save = async ({ from = '', to = '' }: Values) => {
    const [begin, end] = [Date.parse(from) / 1000, Date.parse(to) / 1000];
    if (!(begin < end)) throw new Error(words.fromBeforeTo);
    onSpan({ from: begin, to: end });
  };
  const changes = [
    [words.zoomIn, (span: Span) => zoomed(span, 0.5)],
    [words.zoomOut, (span: Span) => zoomed(span, 2)],
    [words.earlier, (span: Span) => moved(span, -0.5)],
    [words.later, (span: Span) => moved(span, 0.5)],
  ] as const;
  return (
    <div class="range">
      <div class="row small soft">
        {changes.map(([label, to]) => (
          <Button label={label} key={label} idle={!isKnown} onClick={() => onSpan(to(span))} />
        ))}
        {onWhole ? <Button label={words.whole} onClick={onWhole} /> : <span>{words.zoomHint}</span>}
      </div>
      <details>
        <summary>{words.typed}</summary>
        {isKnown && (
          <Form key={of} save={save} verb={texts.show}>
            <div class="grid fields">
              {(['from', 'to'] as const).map((name) => (
                <Field
                  key={name}
                  label={words[name]}
                  name={name}
                  type="datetime-local"
                  step="1"
                  defaultValue={typedTime(span[name])}
                  required
                />
              ))}
            </div>
          </Form>
        )}
      </details>
    </div>
  );
}
