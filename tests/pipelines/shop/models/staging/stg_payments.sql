select p.payment_id, p.order_id, p.method, p.amount, coalesce(r.refunded, 0) as refunded
from {{ ref('base_payments') }} p
left join {{ ref('base_refunds') }} r using (payment_id)
