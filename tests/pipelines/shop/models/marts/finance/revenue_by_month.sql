select d.month, sum(r.orders) as orders, sum(r.revenue) as revenue, max(r.revenue) as best_day
from {{ ref('revenue_by_day') }} r
join {{ ref('dim_days') }} d on r.ordered_on = d.day
group by d.month
