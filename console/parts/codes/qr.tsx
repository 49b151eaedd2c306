/** A QR code. What draws it is loaded with the first one. */
import { Boundary, useFile } from '../page/boundary.tsx';

export function QrCode(props: { text: string; label: string }) {
  return (
    <Boundary>
      <Picture {...props} />
    </Boundary>
  );
}

function Picture({ text, label }: { text: string; label: string }) {
  const drawing = useFile(() => import('../../../src/core/formats/qr-code.ts'));
  if (!drawing) return null;
  return <img class="qr" src={`data:image/svg+xml,${encodeURIComponent(drawing.qrSvg(text))}`} alt={label} />;
}
